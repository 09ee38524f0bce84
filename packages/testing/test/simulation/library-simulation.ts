import { Simulation, callOf } from '../../src/simulation/index.js';
import { Book, CountLoanAction, CountLoans, LendOrReturnAction, Reader } from './library.js';

/** Two books are lent and given back. Each loan is counted once, and no attempt at counting it is final. */
export const library = new Simulation({
  models: [Book, Reader],
  actions: ({ clock, repository }) => [
    new LendOrReturnAction(clock, repository(Book)),
    new CountLoanAction(clock, repository(Reader)),
  ],
  handlers: () => [new CountLoans()],
  given: () => {
    const books = [Book.acquire('Emma'), Book.acquire('Persuasion')];
    return { books, readerIds: [Reader.newId(), Reader.newId()], models: books };
  },
  call: (choices, { books, readerIds }) =>
    callOf(LendOrReturnAction, {
      bookId: choices.pick(books).id.value,
      readerId: choices.pick(readerIds).value,
    }),
  check: async ({ repository, events, counts }) => {
    const readers = await repository(Reader).findAll();
    const counted = readers.reduce((sum, { loanCount }) => sum + loanCount, 0);
    const lent = events.filter(({ type }) => type === 'BookLentEvent').length;
    if (counted !== lent) throw new Error(`${counted} of ${lent} loans are counted`);
    if (counts.has('dead letter')) throw new Error('a loan had to be counted by an operator');
  },
  delivery: { retry: { attemptsMax: 100 } },
});
