import type { ActionExecutor, DeliveryLog, ParkedEvents } from '@framework/core';
import type { AbandonedCalls } from '../call/abandoned-calls.js';
import type { EnvelopeFactory } from '../handler/envelope-factory.js';
import type { LoopWatch } from '../lease/loop-watch.js';
import type { CursorSaver } from '../log/cursor-saver.js';
import type { LogReader } from '../log/log-reader.js';
import type { ParkedCheck } from '../parked/parked-check.js';
import type { Parker } from '../parked/parker.js';
import type { WorkerContext } from '../worker-context.js';

/** What the flows of one database share. */
export interface FlowSurroundings {
  readonly context: WorkerContext;
  readonly parkedEvents: Pick<ParkedEvents, 'beginAttempt' | 'endAttempt' | 'giveBackAttempt'>;
  readonly executor: Pick<ActionExecutor, 'execute'>;
  readonly log: Pick<DeliveryLog, 'load'>;
  readonly envelopes: EnvelopeFactory;
  /** Those of all handlers of the process. */
  readonly abandoned: AbandonedCalls;
  readonly reader: LogReader;
  readonly saver: CursorSaver;
  readonly parker: Parker;
  readonly check: ParkedCheck;
  readonly watch: Pick<LoopWatch, 'now' | 'stoodSince'>;
  /** Called with the tokens of leases that the database says are lost. */
  readonly onLost: (tokens: readonly string[]) => void;
  /** Called when a parked event may be due. */
  readonly onParked: () => void;
}
