import type { EventEnvelope, EventHandler, EventHandlerOptions } from '@framework/events';
import { BookLentEvent } from './book.ts';

/** Sends a letter. A letter with an `id` that was sent already is not sent again. */
export type SendLetter = (letter: {
  readonly id: string;
  readonly to: string;
  readonly text: string;
}) => Promise<void>;

export class WriteToReader implements EventHandler<BookLentEvent> {
  /** Permanent: what the handler has done is stored under it. */
  static readonly handlerName = 'write-to-reader';
  static readonly options: EventHandlerOptions = { startFrom: 'beginning' };
  readonly event = BookLentEvent;
  readonly #send: SendLetter;

  constructor(send: SendLetter) {
    this.#send = send;
  }

  async handle({ event, eventId }: EventEnvelope<BookLentEvent>): Promise<void> {
    await this.#send({ id: eventId, to: event.reader, text: `Enjoy ${event.title}!` });
  }
}
