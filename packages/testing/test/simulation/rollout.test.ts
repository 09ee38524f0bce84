import {
  type EventEnvelope,
  type EventHandler,
  FrameworkEventHandler,
  type HandlerContext,
} from '@framework/events';
import { expect, test } from 'vitest';
import { Simulation, SimulationError, callOf } from '../../src/simulation/index.js';
import { Book, BookLentEvent, CountLoanAction, LendOrReturnAction, Reader } from './library.js';
import { timeout } from './seed-count.js';

/** Counts loans, under a name that it did not always have. */
function countLoans(name: string, aliases: readonly string[] = []): EventHandler<BookLentEvent> {
  class CountLoans implements EventHandler<BookLentEvent> {
    readonly event = BookLentEvent;

    async handle({ event }: EventEnvelope<BookLentEvent>, context: HandlerContext): Promise<void> {
      await context.execute(CountLoanAction, { readerId: event.readerId });
    }
  }
  FrameworkEventHandler({ name, aliases, startFrom: 'beginning' })(CountLoans);
  return new CountLoans();
}

/** A library whose processes are replaced by others with a different version of the handler, and back. */
function renamedHandler(aliases: readonly string[]): Pick<Simulation<never>, 'explore'> {
  return new Simulation({
    models: [Book, Reader],
    actions: ({ clock, repository }) => [
      new LendOrReturnAction(clock, repository(Book)),
      new CountLoanAction(clock, repository(Reader)),
    ],
    versions: 2,
    handlers: ({ version }) => [
      version === 0 ? countLoans('count-loans', aliases) : countLoans('tally-loans'),
    ],
    given: () => {
      const [book, reader] = [Book.acquire('Emma'), Reader.register()];
      return { book, reader, models: [book, reader] };
    },
    call: (_choices, { book, reader }) =>
      callOf(LendOrReturnAction, { bookId: book.id.value, readerId: reader.id.value }),
    check: async ({ repository, given, events }) => {
      const { loanCount } = await repository(Reader).getById(given.reader.id.value);
      const lentCount = events.filter(({ type }) => type === 'BookLentEvent').length;
      if (loanCount !== lentCount) throw new Error(`${loanCount} of ${lentCount} loans are counted`);
    },
    faults: ['rollout', 'stop', 'kill'],
  });
}

test(
  'a renamed handler has each effect once while both versions run side by side',
  {
    timeout,
  },
  async () => {
    const { counts } = await renamedHandler(['tally-loans']).explore({ from: 1, seeds: 60 });
    expect(counts.get('start of another version')).toBeGreaterThan(0);
    expect(counts.get('stop with leases given back')).toBeGreaterThan(0);
  },
);

test('a handler that is renamed without its former name as an alias is reported', { timeout }, async () => {
  const explored = renamedHandler([]).explore({ from: 1, seeds: 60 });
  await expect(explored).rejects.toBeInstanceOf(SimulationError);
});
