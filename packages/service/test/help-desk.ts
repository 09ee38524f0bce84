import {
  Action,
  type Id,
  Model,
  ModelEvent,
  type New,
  type Principal,
  type Repository,
  ShardIdentifier,
  ShardedId,
  shardedIdCodec,
  systemClock,
} from '@framework/core';
import { PgRepository, modelColumns } from '@framework/drizzle-adapter';
import type { EventEnvelope, EventHandler, EventHandlerOptions } from '@framework/events';
import { route, textField, uuidField } from '@framework/http';
import { pgTable, text } from 'drizzle-orm/pg-core';
import { fileURLToPath } from 'node:url';
import * as z from 'zod';

import type { HttpDefinition, ServiceDefinition } from '../src/service-definition.js';

class TicketError extends Error {
  readonly code = 'ticket-closed';
}

/** A question to a help desk. */
export class Ticket extends Model<Ticket, ShardedId<Ticket>, 'OPEN' | 'CLOSED'> {
  readonly subject: string;

  constructor(fields: New<Ticket>) {
    super(fields);
    this.subject = fields.subject;
  }

  close(): Ticket {
    if (this.state === 'CLOSED') throw new TicketError('The ticket was closed before');
    return this.copy({ state: 'CLOSED' }, new TicketClosedEvent(this.id, this.subject));
  }
}

export class TicketClosedEvent extends ModelEvent<Ticket> {
  static readonly payload = z.object({ subject: z.string() });
  readonly subject: string;

  constructor(id: Id<Ticket>, subject: string) {
    super(id.toString(), Ticket);
    this.subject = subject;
  }
}

const tickets = pgTable('tickets', { ...modelColumns(Ticket), subject: text('subject').notNull() });
const shard = ShardIdentifier.of(0, 0);

const opening = z.object({ subject: z.string() });

export class OpenTicketAction extends Action<z.infer<typeof opening>, Ticket> {
  static readonly params = opening;
  static readonly result = Ticket;
  /** What an action waits for, so that a test can stop a service in the middle of a request. */
  static gate: (() => Promise<void>) | undefined;

  protected async perform(_principal: Principal, { subject }: z.infer<typeof opening>): Promise<Ticket> {
    await OpenTicketAction.gate?.();
    const id = ShardedId.generate(Ticket, shard);
    return this.plan().add(new Ticket({ id, state: 'OPEN', createdDate: this.clock.now(), subject }));
  }
}

const closing = z.object({ id: shardedIdCodec(Ticket) });

class CloseTicketAction extends Action<z.infer<typeof closing>, Ticket> {
  static readonly params = closing;
  static readonly result = Ticket;
  readonly #tickets: Repository<Ticket>;

  constructor(repository: Repository<Ticket>) {
    super(systemClock);
    this.#tickets = repository;
  }

  protected async perform(_principal: Principal, { id }: z.infer<typeof closing>): Promise<Ticket> {
    return this.plan().update((await this.#tickets.getById(id)).close());
  }
}

const answer = z.object({ id: uuidField, state: z.string() }).meta({ id: 'Ticket' });
const replyOf = ({ id, state }: Ticket) => ({ body: { id: id.value, state } });

const http: HttpDefinition = {
  info: { title: 'Help desk', version: '1.0.0' },
  problems: {
    'ticket-closed': { status: 409, title: 'The ticket is closed' },
    'ticket-not-found': { status: 404, title: 'The ticket does not exist' },
  },
  routes: [
    route.post(
      '/tickets',
      {
        summary: 'Open a ticket',
        action: OpenTicketAction,
        body: z.strictObject({ subject: textField }),
        answer,
      },
      async ({ body, execute }) => replyOf(await execute(OpenTicketAction, body)),
    ),
    route.post(
      '/tickets/{id}/close',
      {
        summary: 'Close a ticket',
        action: CloseTicketAction,
        path: z.object({ id: uuidField }),
        model: Ticket,
        answer,
        problems: ['ticket-closed', 'ticket-not-found'],
      },
      async ({ path: { id }, execute, idOf }) =>
        replyOf(await execute(CloseTicketAction, { id: idOf(Ticket, id) })),
    ),
  ],
};

/** Keeps the subjects of the tickets that were closed. */
export class NoteClosed implements EventHandler<TicketClosedEvent> {
  static readonly handlerName = 'note-closed';
  static readonly options: EventHandlerOptions = { startFrom: 'beginning' };
  static readonly subjects: string[] = [];
  readonly event = TicketClosedEvent;

  async handle({ event }: EventEnvelope<TicketClosedEvent>): Promise<void> {
    NoteClosed.subjects.push(event.subject);
  }
}

/** A service of another domain than wallets: a model, two actions, a handler. */
export const helpDesk: ServiceDefinition & { readonly http: HttpDefinition } = {
  name: 'help-desk',
  migrationsFolder: fileURLToPath(new URL('./migrations', import.meta.url)),
  compose: ({ databases }) => {
    const repository = new PgRepository({ model: Ticket, table: tickets, databases });
    return {
      repositories: [repository],
      actions: [new OpenTicketAction(systemClock), new CloseTicketAction(repository)],
      handlers: [new NoteClosed()],
    };
  },
  http,
  events: {
    title: 'Events of the help desk',
    version: '1.0.0',
    models: [{ model: Ticket, events: [TicketClosedEvent] }],
  },
};

/** A configuration with one database, as in a file. */
export function configTree(url: string, sections: object = {}): unknown {
  const members = [{ member: 0, name: 'desk-1', configs: { 'primary-config': { 'jdbc-url': url } } }];
  const sharding = {
    'default-shard': { group: 0, member: 0 },
    groups: [{ group: 0, name: 'desk', members }],
  };
  return { framework: { namespace: 'com.example.desk', sharding, ...sections } };
}
