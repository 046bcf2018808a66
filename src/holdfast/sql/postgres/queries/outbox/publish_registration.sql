-- PostgreSQL only: from now on appends look for what was registered, whatever they could see before.
SELECT setval('holdfast_registry_seen', (SELECT max(version) FROM holdfast_registry))
