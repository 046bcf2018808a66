-- PostgreSQL only: from now on, appends with an older snapshot know that they miss a registration.
SELECT setval('holdfast_registry_seen', (SELECT max(version) FROM holdfast_registry))
