-- Nobody has said how many shards a projection has.
DELETE FROM holdfast_layout WHERE projection = :projection
