import type { ActionClass, ExecutionConfiguration, Principal } from '@framework/core';
import type { MemoryCommit } from '../memory/index.js';
import type { DeliveryRecord } from '../record/delivery-record.js';

/** How a call ended for its client: nobody knows after a crash, or when the answer to its commit was lost. */
export type CallOutcome = 'ok' | 'refused' | 'unknown';

/** A call of a client, over all its repeats. */
export interface CallRecord {
  readonly number: number;
  readonly call: SimulationCall;
  readonly key: string | undefined;
  /** `undefined` while it runs. */
  outcome: CallOutcome | undefined;
  /** The code or the text of the error, when it was refused. */
  code: string | undefined;
  /** The results of those of its copies that were ok. */
  readonly results: unknown[];
  /** What refused it. */
  error: unknown;
}

/** An action that a handler executed, and that was ok. */
export interface HandlerEffect {
  readonly handler: string;
  readonly eventId: string;
  readonly effect: string;
}

/** The names of the headers by which commits are found again. */
export const callHeader = 'simulation-call';
export const effectHeader = 'simulation-effect';

/** What happened in a run, as those saw it who took part. */
export class History {
  readonly calls: CallRecord[] = [];
  readonly deliveries: DeliveryRecord[] = [];
  readonly effects: HandlerEffect[] = [];
  /** What a failover has lost. */
  readonly lost: MemoryCommit[] = [];
  /**
   * By handler and event: the ids under which the event may have been handled, each with keys of its own, because a failover has lost
   * the handler and it was registered under another id.
   */
  readonly idsOfLost = new Map<string, Set<string>>();
  /** By handler and event: the place of the failover that has lost that the event was handled, or left it to be. */
  readonly undone = new Map<string, number>();
  /** The idempotency keys under which actions were sent, as texts, by the ids of the actions. */
  readonly keys = new Map<string, string>();
  /** What must never happen, and did. */
  readonly violations: string[] = [];
  /** How often something was met. */
  readonly counts = new Map<string, number>();
  #place = 0;

  get lostEventIds(): ReadonlySet<string> {
    return new Set(this.lost.flatMap(({ events }) => events.map(({ id }) => id)));
  }

  count(what: string): void {
    this.counts.set(what, (this.counts.get(what) ?? 0) + 1);
  }

  /** The next place in the order of everything that is recorded. */
  nextPlace(): number {
    return this.#place++;
  }
}

/** The code of an error, or its name. */
export function codeOf(error: unknown): string {
  if (!(error instanceof Error)) return `thrown: ${String(error)}`;
  const { code } = error as { readonly code?: unknown };
  return typeof code === 'string' ? code : error.name;
}

/** A call of an action by a client. */
export interface SimulationCall {
  readonly action: ActionClass<never, unknown>;
  readonly params: unknown;
  readonly principal?: Principal | undefined;
  /**
   * Whether it has an idempotency key, under which it is repeated until its outcome is known, and sometimes sent twice. Default: most
   * calls have one.
   */
  readonly keyed?: boolean | undefined;
  readonly configuration?: Omit<ExecutionConfiguration, 'idempotencyKey' | 'handledEvent'> | undefined;
}

/** Describes a call, with the types of its params checked. */
export function callOf<Params, Result>(
  action: ActionClass<Params, Result>,
  params: NoInfer<Params>,
  how: Pick<SimulationCall, 'principal' | 'keyed' | 'configuration'> = {},
): SimulationCall {
  return { action, params, ...how };
}
