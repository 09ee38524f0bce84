// In the order of use: the operator, its answers, its changes, what applications add.
export { type EventSearch, type ExplainedEvent, Operator, type PageOptions } from './operator.js';
export {
  type OfShards,
  type OperatorFailure,
  type PartialAnswer,
  type PartialPage,
  failureOf,
} from './answers.js';
export { readPages } from './pages.js';
export type { Consumer, ConsumerPlace, ConsumerProcess } from './consumers.js';
export type { WhyAnswer } from './why.js';
export type { BulkChangeOptions, ChangeAnswer, ChangeOptions, DatabaseChange } from './changes.js';
export type { PublishAgainOptions } from './publish-again.js';
export type { ShardsOverview } from './overview.js';
export type {
  Explanation,
  ExplanationSide,
  InvariantStep,
  InvariantViolation,
  OperatedApplication,
  OperatedRelay,
  OperatorExtension,
  OperatorInvariant,
  OperatorModule,
  OperatorView,
  ViewPage,
} from './extension.js';
