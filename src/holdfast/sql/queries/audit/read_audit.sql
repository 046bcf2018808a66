-- The latest changes first.
SELECT id, at, actor, action, projection, subject, note
FROM holdfast_audit
WHERE CAST(:projection AS text) IS NULL OR projection = :projection
ORDER BY id DESC LIMIT :limit
