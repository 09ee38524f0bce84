export {
  describeDeliveryStore,
  describeLateCommits,
  describeStorageAdapter,
} from './describe-storage-adapter.js';
export type {
  ConcurrentDeliveryFixture,
  DeliveryFixture,
  HeldTransaction,
} from './delivery/delivery-context.js';
export {
  SuiteContext,
  type SuiteOptions,
  otherDatabaseShard,
  changeSetOf,
  firstShard,
  sameDatabaseShard,
  once,
  principal,
} from './suite-context.js';
export type {
  AccountReader,
  LimitedValue,
  StorageFixture,
  StoredEvent,
  ModelReader,
} from './storage-fixture.js';
export {
  Account,
  AccountCreditedEvent,
  AccountDeletedEvent,
  type AccountFields,
  AccountNotedEvent,
  AccountOpenedEvent,
  type AccountState,
  type Json,
  Tag,
  decimal,
  sum,
} from './account.js';
export { RandomExecutions, hops } from './random-executions.js';
export { CreditAccountAction, Overdrawn, TransferAction, WithdrawAction } from './account-actions.js';
