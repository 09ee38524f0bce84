import type { ShardIdentifier } from '@framework/core';
import type { Operation } from '@framework/core/adapter';
import {
  type Attributes,
  type Counter,
  type Histogram,
  type Meter,
  ValueType,
  createNoopMeter,
} from '@opentelemetry/api';

import { shardName } from './spans.js';

/** Boundaries of durations in seconds: those that the semantic conventions give for clients of databases and brokers. */
const secondsBoundaries = [0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1, 5, 10];
const countBoundaries = [1, 2, 4, 8, 16, 32, 64, 128, 256];

/** After so many different attributes of a metric, which names of errors alone can reach, all other errors count as one. */
const attributesMax = 1_000;
const otherError = '_OTHER';

/** Measures operations: how long they take, how they end, how often they are tried again, and how many plans a group has. */
export class Durations {
  /** Whether an SDK takes what is measured. The API never gives the meter of an SDK that is registered later. */
  readonly areTaken: boolean;
  readonly #byKind: Readonly<Record<Measured['kind'], Histogram>>;
  readonly #groupSize: Histogram;
  readonly #retries: Counter;
  /** Made once for each combination, because they are needed very often. */
  readonly #attributes = {
    execute: new Map<string, Attributes>(),
    persist: new Map<string, Attributes>(),
    'write-group': new Map<string, Attributes>(),
    handle: new Map<string, Attributes>(),
    publish: new Map<string, Attributes>(),
  };
  #failedCount = 0;

  constructor(meter: Meter) {
    const seconds = (name: string, description: string): Histogram =>
      meter.createHistogram(name, {
        description,
        unit: 's',
        valueType: ValueType.DOUBLE,
        advice: { explicitBucketBoundaries: secondsBoundaries },
      });
    this.#byKind = {
      execute: seconds('framework.execute.duration', 'Executions of actions, with all their attempts'),
      persist: seconds('framework.persist.duration', 'Commits of actions'),
      'write-group': seconds('framework.group.duration', 'Statements that write plans of several actions'),
      handle: seconds('messaging.process.duration', 'Calls of handlers'),
      publish: seconds('messaging.client.operation.duration', 'Calls of the brokers of relays'),
    };
    this.#groupSize = meter.createHistogram('framework.group.plans', {
      description: 'Plans that are written by one statement',
      unit: '{plan}',
      valueType: ValueType.INT,
      advice: { explicitBucketBoundaries: countBoundaries },
    });
    this.#retries = meter.createCounter('framework.execute.retries', {
      description: 'Attempts of actions after their first ones',
      unit: '{attempt}',
      valueType: ValueType.INT,
    });
    // Without an SDK, every histogram is the same object, which does nothing.
    this.areTaken = this.#groupSize !== createNoopMeter().createHistogram('');
  }

  /** Counts an attempt that is not the first one. */
  recordRetry(action: string): void {
    this.#retries.add(1, this.#attributesOf('execute', action, undefined));
  }

  /** @param error the type of the error with which it has ended, if any */
  record(operation: Measured, durationMs: number, error: string | undefined): void {
    const attributes = this.#attributesOf(operation.kind, subjectOf(operation), error);
    this.#byKind[operation.kind].record(durationMs / 1_000, attributes);
    if (operation.kind === 'write-group')
      this.#groupSize.record(
        operation.planCount,
        this.#attributesOf('write-group', subjectOf(operation), undefined),
      );
  }

  #attributesOf(kind: Measured['kind'], subject: string, error: string | undefined): Attributes {
    // Nearly all operations succeed: these need no key but what the operation has.
    const key = error === undefined ? subject : `${subject} ${error}`;
    const known = this.#attributes[kind].get(key);
    if (known !== undefined) return known;
    if (error !== undefined && error !== otherError && ++this.#failedCount > attributesMax)
      return this.#attributesOf(kind, subject, otherError);
    const attributes = { [subjectNames[kind]]: subject, ...(error !== undefined && { 'error.type': error }) };
    this.#attributes[kind].set(key, attributes);
    return attributes;
  }
}

/** Operations whose durations are metrics. Those of the parts of an attempt are in traces: each metric costs every deposit. */
export type Measured = Exclude<Operation, { readonly kind: 'perform' | 'read' }>;

const subjectNames: Readonly<Record<Measured['kind'], string>> = {
  execute: 'framework.action',
  persist: 'framework.shard',
  'write-group': 'framework.shard',
  handle: 'messaging.consumer.group.name',
  publish: 'framework.relay',
};

/** A metric per combination of shards could have any number of them. */
function shardsName([first, ...others]: readonly ShardIdentifier[]): string {
  return first === undefined || others.length > 0 ? 'several' : shardName(first);
}

/** What an operation is told apart by in metrics. */
function subjectOf(operation: Measured): string {
  switch (operation.kind) {
    case 'execute':
      return operation.action;
    case 'persist':
      return shardsName(operation.shards);
    case 'write-group':
      return shardName(operation.shard);
    case 'handle':
      return operation.handler;
    default:
      return operation.relay;
  }
}
