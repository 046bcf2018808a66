-- Overrides a setting of a projection, for all processes.
INSERT INTO holdfast_setting (projection, name, value, set_at, set_by, note)
VALUES (:projection, :name, :value, :at, :by, :note)
ON CONFLICT (projection, name) DO UPDATE SET
    value = excluded.value, set_at = excluded.set_at, set_by = excluded.set_by, note = excluded.note
