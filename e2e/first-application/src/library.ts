import { ActionExecutor, openDatabases, parseFrameworkConfig, systemClock } from '@framework/core';
import { PgRepository, postgres } from '@framework/drizzle-adapter';
import { Delivery } from '@framework/events';
import { fileURLToPath } from 'node:url';
import { AddBookAction, LendBookAction } from './book-actions.ts';
import { Book } from './book.ts';
import { books } from './books-table.ts';
import { type SendLetter, WriteToReader } from './write-to-reader.ts';

const migrationsFolder = fileURLToPath(new URL('../migrations', import.meta.url));

/** Connects the parts to each other and to the databases. */
export function openLibrary(urls: { readonly north: string; readonly south: string }, send: SendLetter) {
  const { namespace, sharding } = parseFrameworkConfig({
    framework: {
      namespace: 'com.example.library',
      sharding: {
        defaultShard: { group: 0, member: 0 },
        groups: [
          {
            group: 0,
            name: 'north',
            members: [{ member: 0, name: 'north-0', configs: { primaryConfig: { jdbcUrl: urls.north } } }],
          },
          {
            group: 1,
            name: 'south',
            members: [{ member: 0, name: 'south-0', configs: { primaryConfig: { jdbcUrl: urls.south } } }],
          },
        ],
      },
    },
  });

  const databases = openDatabases(sharding, postgres({ migrationsFolder }));
  const repository = new PgRepository({ model: Book, table: books, databases });
  const executor = new ActionExecutor({
    namespace,
    databases,
    repositories: [repository],
    actions: [new AddBookAction(systemClock), new LendBookAction(systemClock, repository)],
  });
  const delivery = new Delivery({ databases, executor, handlers: [new WriteToReader(send)] });

  return {
    executor,
    repository,
    async start(): Promise<void> {
      await databases.ready();
      delivery.start();
    },
    async stop(): Promise<void> {
      await delivery.stop();
      await databases.close();
    },
  };
}
