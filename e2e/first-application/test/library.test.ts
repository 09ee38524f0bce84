import { like, specification } from '@framework/testing/specification';
import { expect, test } from 'vitest';
import { AddBookAction, LendBookAction } from '../src/book-actions.ts';
import { Book, BookAddedEvent, BookLentEvent, NoCopyLeftError } from '../src/book.ts';
import { shardOf } from '../src/branches.ts';
import { WriteToReader } from '../src/write-to-reader.ts';

const letters: unknown[] = [];
const spec = specification({
  models: [Book],
  shards: [shardOf('north'), shardOf('south')],
  actions: ({ clock, repository }) => [new AddBookAction(clock), new LendBookAction(clock, repository(Book))],
  handlers: () => [new WriteToReader(async (letter) => void letters.push(letter))],
});
const dune = Book.add(shardOf('south'), 'Dune', 1, new Date('2026-01-01T00:00:00Z'));

test('a book is added at a branch', async () => {
  await spec.when(AddBookAction, { branch: 'south', title: 'Dune', copies: 1 }).thenExpect({
    models: [like(Book, { title: 'Dune', onShelf: 1 })],
    events: [like(BookAddedEvent, { title: 'Dune' })],
  });
});

test('a book is lent', async () => {
  await spec
    .given(dune)
    .when(LendBookAction, { bookId: dune.id, reader: 'Ada' })
    .thenModels(dune.lend('Ada'));
});

test('a book without a copy on the shelf cannot be lent', async () => {
  await spec
    .given(dune.lend('Ada'))
    .when(LendBookAction, { bookId: dune.id, reader: 'Alan' })
    .thenThrows(NoCopyLeftError);
});

test('the reader of a lent book gets a letter', async () => {
  await spec
    .given(dune)
    .when(LendBookAction, { bookId: dune.id, reader: 'Ada' })
    .delivered()
    .thenEvents(new BookLentEvent(dune.id, { title: 'Dune', reader: 'Ada' }));
  expect(letters).toContainEqual(expect.objectContaining({ to: 'Ada', text: 'Enjoy Dune!' }));
});
