import type {
  ChangeAnswer,
  Consumer as ConsumerAnswer,
  InvariantStep as InvariantStepAnswer,
  Operator,
  OperatorFailure,
  PartialPage as Page,
  WhyAnswer,
} from '@framework/operator';

/** A value as it arrives: dates are texts. */
type Json<Value> = unknown extends Value
  ? unknown
  : Value extends Date
    ? string
    : Value extends object
      ? { readonly [Name in keyof Value]: Json<Value[Name]> }
      : Value;

type AnswerOf<Method extends 'audit' | 'blocked' | 'deadLetters' | 'idempotencyKey' | 'model' | 'shards'> =
  Json<Awaited<ReturnType<Operator[Method]>>>;

export type Failure = Json<OperatorFailure>;
export type PartialPage<Item> = Json<Omit<Page<unknown>, 'items'>> & { readonly items: readonly Item[] };
export type Consumer = Json<ConsumerAnswer>;
export type ConsumerPlace = Consumer['databases'][number];
export type DeadLetters = AnswerOf<'deadLetters'>;
export type DeadLetterGroup = DeadLetters['items'][number];
export type BlockedPage = AnswerOf<'blocked'>;
export type BlockedEvent = BlockedPage['items'][number];
export type Shards = AnswerOf<'shards'>;
export type EventPage = AnswerOf<'model'>;
export type TrackedEvent = EventPage['items'][number];
export type Keys = AnswerOf<'idempotencyKey'>;
export type AuditPage = AnswerOf<'audit'>;
export type Why = Json<WhyAnswer>;
export type InvariantStep = Json<InvariantStepAnswer>;
export type Change = Json<ChangeAnswer>;
export type Row = Readonly<Record<string, unknown>>;

interface Named {
  readonly name: string;
  readonly summary: string;
}

/** What the operator can be asked. */
export interface About {
  readonly readOnly: boolean;
  readonly databases: readonly { readonly shards: readonly string[] }[];
  readonly views: readonly Named[];
  readonly invariants: readonly Named[];
}

/** What is seen at one time. */
export interface Snapshot {
  readonly date: string;
  readonly consumers: { readonly items: readonly Consumer[]; readonly failures: readonly Failure[] };
  readonly deadLetters: DeadLetters;
  readonly shards: Shards;
}

/**
 * Limits a change to as many events of each database as the dry run has counted, because the operator has not confirmed any that arrived
 * later. Publishing again has no such limit: it publishes everything or nothing, so one later event would refuse all others.
 */
export function boundOf(operation: string, dryRun: Change | undefined): { readonly limit?: number } {
  if (operation === 'publish-again') return {};
  if (dryRun === undefined || dryRun.count === 0 || dryRun.mayBeMore || dryRun.failures.length > 0) return {};
  return { limit: Math.max(...dryRun.items.map((item) => item.count)) };
}
