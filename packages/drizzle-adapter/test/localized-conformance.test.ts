// @module-tag postgres
import { describeDeliveryStore, describeStorageAdapter } from '@framework/conformance';
import { localizedDatabase } from './fixtures/localized-database.js';
import { PgDeliveryFixture } from './fixtures/pg-delivery-fixture.js';
import { PgFixture } from './fixtures/pg-fixture.js';

describeStorageAdapter('PostgreSQL with a locale and a time zone', () => PgFixture.open(localizedDatabase));
describeDeliveryStore('PostgreSQL with a locale and a time zone', async () =>
  PgDeliveryFixture.open(await localizedDatabase()),
);
