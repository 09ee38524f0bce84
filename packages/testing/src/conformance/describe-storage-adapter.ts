import { afterAll, beforeAll, beforeEach, describe } from 'vitest';
import { describeActionRecords } from './behaviours/describe-action-records.js';
import { describeCommits } from './behaviours/describe-commits.js';
import { describeConcurrency } from './behaviours/describe-concurrency.js';
import { describeCrossShard } from './behaviours/describe-cross-shard.js';
import { describeEventLog } from './behaviours/describe-event-log.js';
import { describeGroups } from './behaviours/describe-groups.js';
import { describeHandlerKeys } from './behaviours/describe-handler-keys.js';
import { describeIdempotency } from './behaviours/describe-idempotency.js';
import { describeKeyExpiry } from './behaviours/describe-key-expiry.js';
import { describeLargePlans } from './behaviours/describe-large-plans.js';
import { describePages } from './behaviours/describe-pages.js';
import { describePlacement } from './behaviours/describe-placement.js';
import { describeReads } from './behaviours/describe-reads.js';
import { describeRefusals } from './behaviours/describe-refusals.js';
import { describeSlots } from './behaviours/describe-slots.js';
import { describeSoftDelete } from './behaviours/describe-soft-delete.js';
import { describeStaleRecords } from './behaviours/describe-stale-records.js';
import { describeTransactions } from './behaviours/describe-transactions.js';
import { describeUnknownOutcomes } from './behaviours/describe-unknown-outcomes.js';
import { describeUnstorableValues } from './behaviours/describe-unstorable-values.js';
import { describeValues } from './behaviours/describe-values.js';
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
