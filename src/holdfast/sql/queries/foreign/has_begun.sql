-- Whether a projection has begun with any feed that others write.
SELECT 1 FROM holdfast_checkpoint WHERE projection = :projection AND origin IS NOT NULL LIMIT 1
