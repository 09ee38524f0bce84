import { afterAll, beforeAll, beforeEach, describe } from 'vitest';

import { describeCommits, describeTransactions } from './behaviours/describe-commits.js';
import { describeConcurrency, describeStaleRecords } from './behaviours/describe-concurrency.js';
import { describeActionRecords, describeEventLog } from './behaviours/describe-event-log.js';
import { describeGroups, describeLargePlans } from './behaviours/describe-groups.js';
import {
  describeHandlerKeys,
  describeIdempotency,
  describeKeyExpiry,
} from './behaviours/describe-idempotency.js';
import { describePages, describeReads, describeSoftDelete } from './behaviours/describe-reads.js';
import { describeCrossShard, describePlacement, describeSlots } from './behaviours/describe-sharding.js';
import { describeUnknownOutcomes } from './behaviours/describe-unknown-outcomes.js';
import { describeRefusals, describeUnstorableValues, describeValues } from './behaviours/describe-values.js';
import type { StorageFixture } from './storage-fixture.js';
import { SuiteContext, type SuiteOptions } from './suite-context.js';

/**
 * Registers the tests that every storage adapter must pass, to be called at the top of a vitest file.
 *
 * The fixture is opened once, and emptied before every test.
 *
 * ```ts
 * describeStorageAdapter('PostgreSQL', () => PgFixture.open());
 * ```
 *
 * @param name of the database, for the titles
 * @param options what to change in the defaults of the suite's executor: an adapter runs it with `groupCommit`, too
 */
export function describeStorageAdapter(
  name: string,
  openFixture: () => Promise<StorageFixture>,
  options: SuiteOptions = {},
): void {
  describe(`a storage adapter on ${name}`, () => {
    const context = new SuiteContext();
    beforeAll(async () => context.open(await openFixture(), options));
    beforeEach(() => context.fixture.clear());
    afterAll(() => context.fixture.close());

    describeCommits(context);
    describeActionRecords(context);
    describeStaleRecords(context);
    describeRefusals(context);
    describeConcurrency(context);
    describeGroups(context);
    describeLargePlans(context);
    describeUnknownOutcomes(context);
    describeIdempotency(context);
    describeKeyExpiry(context);
    describeHandlerKeys(context);
    describeCrossShard(context);
    describePlacement(context);
    describeValues(context);
    describeUnstorableValues(context);
    describeReads(context);
    describePages(context);
    describeSoftDelete(context);
    describeTransactions(context);
    describeEventLog(context);
    describeSlots(context);
  });
}
