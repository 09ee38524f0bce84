import { afterAll, beforeAll, beforeEach, describe } from 'vitest';

import {
  describeCommits,
  describeTransactions,
  describeUnknownOutcomes,
} from './behaviours/describe-commits.js';
import { describeConcurrency, describeStaleRecords } from './behaviours/describe-concurrency.js';
import { describeActionRecords, describeEventLog } from './behaviours/describe-event-log.js';
import { describeGroups, describeLargePlans } from './behaviours/describe-groups.js';
import {
  describeHandlerKeys,
  describeIdempotency,
  describeKeyExpiry,
} from './behaviours/describe-idempotency.js';
import { describePages, describeReads, describeSoftDelete } from './behaviours/describe-reads.js';
import { describeCrossShard, describePlacement } from './behaviours/describe-sharding.js';
import { describeRefusals, describeUnstorableValues, describeValues } from './behaviours/describe-values.js';
import { describeAttempts } from './delivery/describe-attempts.js';
import { describeBlockedModels, describeDueModels } from './delivery/describe-blocked-models.js';
import { describeDeadLetters } from './delivery/describe-dead-letters.js';
import { describeCursors, describeHandlerNames, describeLeases } from './delivery/describe-handlers.js';
import { describeLateReads, describeLateStarts, describeLog } from './delivery/describe-log.js';
import { describeOperatorChanges } from './delivery/describe-operator-changes.js';
import { describeOperatorLog } from './delivery/describe-operator-log.js';
import {
  type ConcurrentDeliveryFixture,
  DeliveryContext,
  type DeliveryFixture,
} from './delivery/delivery-context.js';
import type { StorageFixture } from './storage-fixture.js';
import { SuiteContext, type SuiteOptions } from './suite-context.js';

/**
 * Registers the tests that every storage adapter must pass. Call it at the top level of a vitest file.
 *
 * The fixture is opened once, and emptied before every test.
 *
 * ```ts
 * describeStorageAdapter('PostgreSQL', () => PgFixture.open());
 * ```
 *
 * @param name the name of the database, for the titles
 * @param options overrides of the defaults of the suite's executor. Every adapter must also pass the suite with
 * `groupCommit: true`, so register it a second time
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
  });
}

/**
 * Registers the tests that every delivery store must pass, and those of its store for operators, which are skipped if it has none.
 * Call it at the top level of a vitest file.
 *
 * The fixture is opened once, and emptied before every test.
 *
 * ```ts
 * describeDeliveryStore('PostgreSQL', () => PgDeliveryFixture.open());
 * ```
 *
 * @param name the name of the database, for the titles
 */
export function describeDeliveryStore(name: string, openFixture: () => Promise<DeliveryFixture>): void {
  describe(`a delivery store on ${name}`, () => {
    const context = opened(openFixture);
    describeLog(context);
    describeLeases(context);
    describeHandlerNames(context);
    describeCursors(context);
    describeBlockedModels(context);
    describeDueModels(context);
    describeAttempts(context);
    describeDeadLetters(context);
    describe('for operators', () => {
      beforeEach(({ skip }) =>
        skip(context.store.operator === undefined, 'the adapter has nothing for operators'),
      );
      describeOperatorLog(context);
      describeOperatorChanges(context);
    });
  });
}

/**
 * Registers further tests for a delivery store whose database can have several transactions open at once: events that are
 * committed late must be delivered, too.
 *
 * @param name the name of the database, for the titles
 */
export function describeLateCommits(
  name: string,
  openFixture: () => Promise<ConcurrentDeliveryFixture>,
): void {
  describe(`a delivery store on ${name}, where transactions commit late`, () => {
    const context = opened(openFixture);
    describeLateReads(context);
    describeLateStarts(context);
  });
}

function opened<Fixture extends DeliveryFixture>(
  openFixture: () => Promise<Fixture>,
): DeliveryContext<Fixture> {
  const context = new DeliveryContext<Fixture>();
  beforeAll(async () => context.open(await openFixture()));
  beforeEach(() => context.fixture.clear());
  afterAll(() => context.fixture.close());
  return context;
}
