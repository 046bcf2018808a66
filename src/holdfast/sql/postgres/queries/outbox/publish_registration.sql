-- PostgreSQL only: from now on, appends with an older snapshot know that they miss a registration.
SELECT setval(CAST('holdfast_registry_seen' AS regclass), (SELECT max(version) FROM holdfast_registry))
