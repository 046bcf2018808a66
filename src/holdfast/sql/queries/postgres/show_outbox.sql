-- PostgreSQL only: from now on appends look for what was registered, whatever they could see before.
SELECT setval('holdfast_outbox_version_seen', (SELECT version FROM holdfast_outbox_version))
