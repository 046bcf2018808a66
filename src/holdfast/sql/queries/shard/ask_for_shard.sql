-- Another process asks the leader for this shard, which then releases it.
UPDATE holdfast_checkpoint SET asked_by = :by, revision = revision + 1
WHERE projection = :projection AND feed = :feed AND leader = :leader AND asked_by IS NULL
