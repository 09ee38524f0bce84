import { Action, type Clock, FrameworkAction, type Principal } from '@framework/core';
import {
  type BatchEventHandler,
  type EventEnvelope,
  type EventHandler,
  FrameworkEventHandler,
  RetryLaterError,
  defaultDeliverySettings,
} from '@framework/events';
import { tuned } from '@framework/events/internal';
import type { MemoryRepository } from '../../src/memory/index.js';
import {
  type Choices,
  Simulation,
  type SimulationGiven,
  type SimulationState,
  callOf,
} from '../../src/simulation/index.js';
import { Register, RegisterWrittenEvent, near } from './registers.js';

/** How many events each write of the register has, and how long after the previous one it comes. */
const eventsOfWrite = 20;
const writeEveryMs = 150;
/**
 * By how many events per second the lag must shrink after an outage, although more events come. It does by at least 1,500 in batches,
 * and by less than 50 if each event needs statements of its own.
 */
const rateMin = 200;
/** From which lag on the rate is measured. */
const measuredLag = 3 * eventsOfWrite;
const start = new Date('2026-01-01T00:00:00Z');

interface Given extends SimulationGiven {
  readonly register: Register;
}

/** A third party that is unavailable for a while, and what the client of a handler throws meanwhile. */
interface Outage {
  readonly fromMs: number;
  readonly toMs: number;
  readonly thrown: Error;
}

/** What a third party has received, by event, and when. */
class ThirdParty {
  readonly receivedMs = new Map<string, number>();

  constructor(
    readonly handler: string,
    readonly outage: Outage,
  ) {}

  receive(eventIds: readonly string[], nowMs: number): void {
    const { fromMs, toMs, thrown } = this.outage;
    if (nowMs >= fromMs && nowMs < toMs) throw thrown;
    for (const id of eventIds) this.receivedMs.set(id, nowMs);
  }
}

/** Writes the register when it is due, with many events. */
@FrameworkAction()
class WriteOftenAction extends Action<{ readonly id: string; readonly dueMs: number }> {
  constructor(
    clock: Clock,
    private readonly registers: MemoryRepository<Register>,
  ) {
    super(clock);
  }

  protected async perform(
    _principal: Principal,
    { id, dueMs }: { readonly id: string; readonly dueMs: number },
  ): Promise<void> {
    await this.clock.sleep(dueMs - this.clock.elapsedMs());
    let register = await this.registers.getById(id);
    for (let count = 0; count < eventsOfWrite; count++)
      register = register.write(`${dueMs}.${count}`, { times: 0, throws: 'error' });
    this.plan().update(register);
  }
}

/** Sends each event to a third party. */
@FrameworkEventHandler({ name: 'sender', startFrom: 'beginning' })
class Sender implements EventHandler<RegisterWrittenEvent> {
  readonly event = RegisterWrittenEvent;

  constructor(
    private readonly clock: Clock,
    private readonly party: () => ThirdParty,
  ) {}

  async handle({ eventId }: EventEnvelope<RegisterWrittenEvent>): Promise<void> {
    this.party().receive([eventId], this.clock.elapsedMs());
  }
}

/** Sends several events at once. */
@FrameworkEventHandler({ name: 'bulk-sender', startFrom: 'beginning', batchMax: 10 })
class BulkSender implements BatchEventHandler<RegisterWrittenEvent> {
  readonly event = RegisterWrittenEvent;

  constructor(
    private readonly clock: Clock,
    private readonly party: () => ThirdParty,
  ) {}

  async handleBatch(envelopes: readonly EventEnvelope<RegisterWrittenEvent>[]): Promise<void> {
    this.party().receive(
      envelopes.map(({ eventId }) => eventId),
      this.clock.elapsedMs(),
    );
  }
}

/**
 * A register that is written all the time, and two handlers whose third parties are unavailable for seconds or minutes.
 *
 * @param rates receives by how many events per second each lag has shrunk after its outage
 */
export function thirdPartiesSimulation(rates: number[] = []): Simulation<Given> {
  let one!: ThirdParty;
  let other!: ThirdParty;
  let writeCount = 0;
  return new Simulation<Given>({
    models: [Register],
    actions: ({ clock, repository }) => [new WriteOftenAction(clock, repository(Register))],
    handlers: ({ clock }) => [new Sender(clock, () => one), new BulkSender(clock, () => other)],
    given: (choices) => {
      one = new ThirdParty('sender', outageOf(choices));
      other = new ThirdParty('bulk-sender', outageOf(choices));
      writeCount = 0;
      const register = Register.of(near);
      return { register, models: [register] };
    },
    call: (_choices, { register }) =>
      callOf(WriteOftenAction, { id: register.id.value, dueMs: writeEveryMs * writeCount++ }),
    check: (state) => {
      for (const party of [one, other]) checkLag(party, state, rates);
      if (state.counts.has('dead letter'))
        throw new Error('events have become dead letters because a third party was unavailable');
    },
    faults: [],
    latencyMs: 5,
    start,
    delivery: tuned({
      readMax: 100,
      retry: { ...defaultDeliverySettings.retry, backoffMaxMs: 20_000 },
    }),
  });
}

function outageOf(choices: Choices): Outage {
  const fromMs = choices.between(300, 1_500);
  return {
    fromMs,
    toMs: fromMs + choices.pick([2_000, 1_000, 4_000, 100_000]),
    thrown: choices.pick([
      new Error('unavailable'),
      new RetryLaterError(),
      new RetryLaterError({ afterMs: 1_000 }),
      new RetryLaterError({ afterMs: 10_000 }),
    ]),
  };
}

/** Checks how quickly the lag of a handler has shrunk since the first event that was received after the outage. */
function checkLag(
  { handler, outage, receivedMs }: ThirdParty,
  { events }: SimulationState<Given>,
  rates: number[],
): void {
  const writtenMs = events.map(({ createdDate }) => createdDate.getTime() - start.getTime());
  const received = [...receivedMs.values()].toSorted((one, other) => one - other);
  const resumed = received.findIndex((ms) => ms >= outage.toMs);
  const lagAt = (nowMs: number, receivedCount: number): number =>
    writtenMs.filter((ms) => ms <= nowMs).length - receivedCount;
  const resumedMs = received[resumed] ?? Infinity;
  const lag = lagAt(resumedMs, resumed);
  if (!(lag > measuredLag)) return;
  const caughtUpMs =
    received.find((ms, index) => index >= resumed && lagAt(ms, index + 1) <= eventsOfWrite) ?? Infinity;
  const rate = ((lag - eventsOfWrite) * 1_000) / (caughtUpMs - resumedMs);
  rates.push(rate);
  if (rate >= rateMin) return;
  throw new Error(
    `after the outage, the lag of ${handler} must shrink by at least ${rateMin} events per second, ` +
      `but it shrank by ${Math.round(rate)} per second from ${lag} events`,
  );
}
