import type { Clock } from '@framework/core';
import {
  type AnyEventHandler,
  type BatchEventHandler,
  type EventEnvelope,
  type EventHandler,
  FrameworkEventHandler,
  type HandlerContext,
  PartialBatchError,
} from '@framework/events';
import {
  EchoAction,
  type Notes,
  type Reaction,
  RegisterStampedEvent,
  RegisterWrittenEvent,
} from './registers.js';

type Written = RegisterWrittenEvent | RegisterStampedEvent;

/** The number of versions of the handlers. */
export const versionCount = 4;

/**
 * The handlers of one version of the code. In the versions before the last one, which is 0, the reactor did not exist yet (3), had
 * another name (2), or did not want all events (1).
 *
 * @param waits whether the collector waits when its batches fail
 */
export function handlersOf(
  version: number,
  { clock, notes, waits }: { readonly clock: Clock; readonly notes: () => Notes; readonly waits: boolean },
): readonly AnyEventHandler[] {
  const collector = new (waits ? WaitingCollector : Collector)(clock, notes);
  if (version === 3) return [collector];
  const reactors = [Reactor, NarrowReactor, FormerReactor] as const;
  return [new (reactors[version] ?? Reactor)(clock, notes), collector];
}

/** Does what the events request: waits, writes, and fails in every way. */
abstract class Reacting implements EventHandler<Written> {
  abstract readonly event: EventHandler<Written>['event'];
  readonly #clock: Clock;
  readonly #notes: () => Notes;

  constructor(clock: Clock, notes: () => Notes) {
    this.#clock = clock;
    this.#notes = notes;
  }

  async handle({ event, eventId }: EventEnvelope<Written>, context: HandlerContext): Promise<void> {
    const { writesTo, fails, waits } = event.reaction;
    if (waits !== undefined && happensAgain(this.#notes(), `wait for ${eventId}`, waits.times))
      await wait(this.#clock, waits, context);
    if (fails === 'before') await this.#fail(eventId, event.reaction, context);
    if (writesTo !== undefined) await context.execute(EchoAction, { id: writesTo, of: event.mark });
    if (fails === 'after') await this.#fail(eventId, event.reaction, context);
  }

  async #fail(eventId: string, { times, throws }: Reaction, context: HandlerContext): Promise<void> {
    if (!happensAgain(this.#notes(), eventId, times)) return;
    if (throws === 'hangs-deaf') await new Promise(() => undefined);
    if (throws === 'hangs')
      await new Promise((resolve) => context.signal.addEventListener('abort', resolve, { once: true }));
    if (throws === 'error') throw new Error('now and then');
    throw thrown[throws];
  }
}

/** The present reactor. */
@FrameworkEventHandler({ name: 'reactor', aliases: ['former-reactor'], startFrom: 'beginning' })
class Reactor extends Reacting {
  readonly event = [RegisterWrittenEvent, RegisterStampedEvent];
}

/** An earlier version of the reactor, which does not want events of stamped marks. */
@FrameworkEventHandler({ name: 'reactor', aliases: ['former-reactor'], startFrom: 'beginning' })
class NarrowReactor extends Reacting {
  readonly event = [RegisterWrittenEvent];
}

/** The reactor before it was renamed. */
@FrameworkEventHandler({ name: 'former-reactor', startFrom: 'beginning' })
class FormerReactor extends Reacting {
  readonly event = [RegisterWrittenEvent, RegisterStampedEvent];
}

/** Takes all events, several at once, waits, and fails. */
abstract class Collecting implements BatchEventHandler<undefined> {
  readonly event = 'all';
  readonly #clock: Clock;
  readonly #notes: () => Notes;

  constructor(clock: Clock, notes: () => Notes) {
    this.#clock = clock;
    this.#notes = notes;
  }

  async handleBatch(envelopes: readonly EventEnvelope<undefined>[], context: HandlerContext): Promise<void> {
    const left = { failed: new Array<string>(), waiting: new Array<string>() };
    for (const { payload, eventId } of envelopes) {
      const { reaction } = payload as Pick<Written, 'reaction'>;
      const { waits, batchFails = 0 } = reaction;
      if (waits !== undefined && happensAgain(this.#notes(), `batch waits for ${eventId}`, waits.times))
        await wait(this.#clock, waits, context);
      if (happensAgain(this.#notes(), `batch with ${eventId}`, batchFails))
        throw new Error('now and then, all together');
      if (reaction.left !== undefined && happensAgain(this.#notes(), `left ${eventId}`, reaction.left.times))
        left[reaction.left.as].push(eventId);
    }
    const failures = left.failed.map((eventId) => ({ eventId, error: new Error('now and then') }));
    if (failures.length + left.waiting.length > 0)
      throw new PartialBatchError(failures, { waiting: left.waiting });
  }
}

/** When a batch fails, its events are retried one by one. */
@FrameworkEventHandler({ name: 'collector', startFrom: 'beginning', batchMax: 3 })
class Collector extends Collecting {}

/** When a batch fails, the whole batch waits and is retried. */
@FrameworkEventHandler({
  name: 'collector',
  startFrom: 'beginning',
  batchMax: 3,
  whenBatchFails: 'wait',
})
class WaitingCollector extends Collecting {}

const thrown = {
  text: 'a text',
  nothing: undefined,
  hangs: new Error('given up'),
  'hangs-deaf': undefined,
  hostile: {
    toString(): string {
      throw new Error('not even this');
    },
  },
};

async function wait(
  clock: Clock,
  { ms, isDeaf }: NonNullable<Reaction['waits']>,
  { signal }: HandlerContext,
): Promise<void> {
  await (isDeaf ? clock.sleep(ms) : clock.sleep(ms, signal));
  if (!isDeaf) signal.throwIfAborted();
}

/** Whether something has happened less often than intended so far; counts it if so. */
function happensAgain({ failures }: Notes, what: string, times: number): boolean {
  const count = failures.get(what) ?? 0;
  if (count >= times) return false;
  failures.set(what, count + 1);
  return true;
}
