"""Makes Neutron's tables in an empty database: `neutron-db-manage upgrade` cannot, its first migrations change constraints, which
SQLite has no words for. `neutron-db-manage stamp heads` then says how new they are."""

import sys

import sqlalchemy
from neutron.db.migration.models import head

head.get_metadata().create_all(sqlalchemy.create_engine('sqlite:///' + sys.argv[1]))
