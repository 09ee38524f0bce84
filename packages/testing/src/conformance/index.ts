export { describeStorageAdapter } from './describe-storage-adapter.js';
export {
  SuiteContext,
  type SuiteOptions,
  abroad,
  home,
  neighbour,
  once,
  principal,
} from './suite-context.js';
export type { AccountReader, StorageFixture, StoredEvent } from './storage-fixture.js';
export type { ModelReader } from './model-reader.js';
export {
  Account,
  AccountCreditedEvent,
  AccountDeletedEvent,
  type AccountFields,
  AccountNotedEvent,
  AccountOpenedEvent,
  type AccountState,
  type Json,
} from './domain/account.js';
export { Tag } from './domain/tag.js';
export { RandomExecutions, hops } from './random-executions.js';
export { decimal, sum } from './domain/decimal-text.js';
