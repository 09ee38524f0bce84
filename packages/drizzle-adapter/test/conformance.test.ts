// @module-tag postgres
import { describeDeliveryStore, describeLateCommits, describeStorageAdapter } from '@framework/conformance';
import { PgDeliveryFixture } from './fixtures/pg-delivery-fixture.js';
import { PgFixture } from './fixtures/pg-fixture.js';

describeStorageAdapter('PostgreSQL', () => PgFixture.open());
describeStorageAdapter('PostgreSQL, with group commit', () => PgFixture.open(), { groupCommit: true });
describeDeliveryStore('PostgreSQL', () => PgDeliveryFixture.open());
describeLateCommits('PostgreSQL', () => PgDeliveryFixture.open());
