// In the order in which a specification reads: its parts, given, when, then; the environment behind it.
export { Specification, specification } from './specification.js';
export {
  type MemoryRepositoryClass,
  type RepositoryOf,
  type PlacedModel,
  type TestEnvironmentOptions,
  type EnvironmentSetup,
  TestEnvironment,
  type EnvironmentExecution,
} from './test-environment.js';
export { ActionSpecification, type ExpectedOutcome } from './action-specification.js';
export { type ExpectedHandling, HandlerSpecification } from './handler-specification.js';
export {
  Like,
  type SomeFields,
  like,
  type Expected,
  type ExpectedEffects,
  type ExpectedEvent,
  type ExpectedModel,
  type ExpectedError,
  SpecificationError,
  type SpecificationErrorCode,
} from './expectation.js';
export type { EventOrigin } from './commit-event.js';
export type { DeliverAllOptions } from './environment-delivery.js';
export type { DeliveryReport, HandlerAttempt } from './delivery-run.js';
