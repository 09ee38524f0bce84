import type { ActionClass, ExecutionConfiguration, Principal } from '@framework/core';
import type { MemoryCommit } from '../memory/index.js';
import type { CallOutcome } from '../record/call-recorder.js';
import type { DeliveryRecord } from '../record/delivery-record.js';

/** A client's call, including all its repeats. */
export interface CallRecord {
  readonly number: number;
  readonly call: SimulationCall;
  readonly key: string | undefined;
  /** For its client: unknown after a crash, or when the answer to the commit was lost. `undefined` while the call runs. */
  outcome: CallOutcome | undefined;
  /** The code or the text of the error, if the call was refused. */
  code: string | undefined;
  /** The results of the requests that succeeded. */
  readonly results: unknown[];
  /** The error, if the call was refused. */
  error: unknown;
}

/** An action that a handler executed successfully. */
export interface HandlerEffect {
  readonly handler: string;
  readonly eventId: string;
  readonly effect: string;
}

/** The headers that identify commits. */
export const callHeader = 'simulation-call';
export const effectHeader = 'simulation-effect';

/** What happened in a run, as seen by everybody who took part. */
export class History {
  readonly calls: CallRecord[] = [];
  readonly deliveries: DeliveryRecord[] = [];
  readonly effects: HandlerEffect[] = [];
  /** The commits that failovers have lost. */
  readonly lost: MemoryCommit[] = [];
  /**
   * By handler and event: the handler ids under which the event may have been handled, each with its own keys. There
   * are several when a failover lost the handler and it was registered again under another id.
   */
  readonly idsOfLost = new Map<string, Set<string>>();
  /** By handler and event: the position of the failover after which the event must be handled, perhaps again. */
  readonly undone = new Map<string, number>();
  /** The idempotency keys of actions, as texts, by action id. */
  readonly keys = new Map<string, string>();
  /** The promises that were broken. */
  readonly violations: string[] = [];
  /** How often each kind of situation occurred. */
  readonly counts = new Map<string, number>();
  #place = 0;

  get lostEventIds(): ReadonlySet<string> {
    return new Set(this.lost.flatMap(({ events }) => events.map(({ id }) => id)));
  }

  count(what: string): void {
    this.counts.set(what, (this.counts.get(what) ?? 0) + 1);
  }

  /** The next position in the order of everything that is recorded. */
  nextPlace(): number {
    return this.#place++;
  }
}

/** The code of an error, otherwise its name; for anything else that was thrown, its text. */
export function codeOf(error: unknown): string {
  if (!(error instanceof Error)) return `thrown: ${String(error)}`;
  const { code } = error as { readonly code?: unknown };
  return typeof code === 'string' ? code : error.name;
}

/** A client's call of an action. */
export interface SimulationCall {
  readonly action: ActionClass<never, unknown>;
  readonly params: unknown;
  readonly principal?: Principal | undefined;
  /**
   * Whether the call has an idempotency key, with which it is repeated until its outcome is known, and sometimes sent
   * twice. Default: most calls have one.
   */
  readonly keyed?: boolean | undefined;
  readonly configuration?: Omit<ExecutionConfiguration, 'idempotencyKey' | 'handledEvent'> | undefined;
}

/** Describes a call, and checks the types of its params. */
export function callOf<Params, Result>(
  action: ActionClass<Params, Result>,
  params: NoInfer<Params>,
  how: Pick<SimulationCall, 'principal' | 'keyed' | 'configuration'> = {},
): SimulationCall {
  return { action, params, ...how };
}
