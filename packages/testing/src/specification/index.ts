// In the order in which a specification reads: what it is about, given, when, then; the world behind it.
export { Specification, specification } from './specification.js';
export type { MemoryRepositoryClass, RepositoryOf, WorldOptions, WorldSetup } from './world/world-setup.js';
export { ActionSpecification, type ExpectedOutcome } from './action-specification.js';
export { type ExpectedHandling, HandlerSpecification } from './handler-specification.js';
export { Like, type SomeFields, like } from './expectation/like.js';
export type { Expected, ExpectedEffects, ExpectedEvent, ExpectedModel } from './expectation/expected.js';
export type { ExpectedError } from './expectation/assert-thrown.js';

export { World, type WorldExecution } from './world/world.js';
export type { EventOrigin } from './world/commit-event.js';
export type { DeliverAllOptions } from './delivery/world-delivery.js';
export type { DeliveryReport } from './delivery/delivery-run.js';
export type { HandlerAttempt } from './delivery/handler-watch.js';
export { SpecificationError, type SpecificationErrorCode } from './specification-error.js';
