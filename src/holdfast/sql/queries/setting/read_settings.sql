-- The settings of a projection that operators have overridden, or of all.
SELECT projection, name, value, set_at, set_by, note FROM holdfast_setting
WHERE CAST(:projection AS text) IS NULL OR projection = :projection
ORDER BY projection, name
