import { describeStorageAdapter } from '@framework/conformance';
import { PgFixture } from './fixtures/pg-fixture.js';

describeStorageAdapter('PostgreSQL', () => PgFixture.open());
describeStorageAdapter('PostgreSQL, with grouped commit', () => PgFixture.open(), { groupCommit: true });
