import { EmbeddedPostgres } from '@framework/embedded-postgres';
import { AddBookAction, LendBookAction } from './book-actions.ts';
import { openLibrary } from './library.ts';
import type { SendLetter } from './write-to-reader.ts';

// A PostgreSQL server for development, whose data is in the folder `data`, and a database in it for each shard.
const server = await EmbeddedPostgres.start({ directory: 'data' });
await server.ensureDatabase('north');
await server.ensureDatabase('south');

// In this example, a letter is not sent but kept, so that it can be printed below.
const { promise: letter, resolve } = Promise.withResolvers<string>();
const send: SendLetter = async ({ to, text }) => resolve(`letter to ${to}: ${text}`);

const library = openLibrary({ north: server.url('north'), south: server.url('south') }, send);
await library.start();

const librarian = { name: 'Grace' };
const { executor, repository } = library;
const dune = await executor.execute(librarian, AddBookAction, { branch: 'south', title: 'Dune', copies: 2 });
await executor.execute(librarian, AddBookAction, { branch: 'north', title: 'Emma', copies: 1 });
console.log(`added ${dune.title} on ${String(dune.id.resolveShardIdentifier())}`);

const lent = await executor.execute(librarian, LendBookAction, { bookId: dune.id, reader: 'Ada' });
console.log(`${lent.onShelf} on the shelf, version ${lent.version}`);

// Its handler is called after the commit, usually a few milliseconds later.
console.log(await letter);

// A page has the books of both shards, here the newest first.
const { items } = await repository.findPage({ limit: 2, direction: 'descending' });
console.log(items.map(({ title }) => title).join(', '));

await library.stop();
await server.stop();
