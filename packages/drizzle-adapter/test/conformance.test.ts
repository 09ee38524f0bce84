import { describeStorageAdapter } from '@framework/testing/conformance';
import { PgFixture } from './fixtures/pg-fixture.js';

describeStorageAdapter('PostgreSQL', () => PgFixture.open());
