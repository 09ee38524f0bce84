import { FrameworkError } from './framework-error.js';

/** A string is not a valid id of the expected kind. */
export class InvalidIdError extends FrameworkError {
  constructor(value: unknown, expected: string) {
    super('invalid-id', `'${String(value).slice(0, 64)}' is not ${expected}`);
  }
}

/** A group or member is out of range. */
export class InvalidShardError extends FrameworkError {
  constructor(part: 'group' | 'member', value: number, maximum: number) {
    super('invalid-shard', `${part} ${value} is not an integer from 0 to ${maximum}`);
  }
}

/** The `after` of a page is not the `next` of the previous page. */
export class InvalidCursorError extends FrameworkError {
  constructor(cursor: unknown) {
    super(
      'invalid-cursor',
      `'${String(cursor).slice(0, 64)}' is not a cursor: pass the next of the previous page, unchanged`,
    );
  }
}

/** A page was requested with a limit that is out of range. */
export class InvalidPageLimitError extends FrameworkError {
  constructor(limit: unknown, maximum: number) {
    super(
      'invalid-page-limit',
      `The limit of a page is ${String(limit)}: pass a whole number from 1 to ${maximum}`,
    );
  }
}

/** A model was built without a required field, or with an invalid version. */
export class InvalidModelError extends FrameworkError {
  constructor(message: string) {
    super('invalid-model', message);
  }
}

/** A value would not come back from the database as it was staged; nothing was written. */
export class UnstorableValueError extends FrameworkError {
  /** The position of the value, such as `Wallet.balance` or `WalletCreatedEvent.amount`. */
  readonly path: string;
  /** What is wrong with it, and what to do. */
  readonly reason: string;

  constructor(path: string, reason: string, options?: { readonly cause?: unknown }) {
    super('unstorable-value', `${path} cannot be stored exactly: ${reason}`, options);
    this.path = path;
    this.reason = reason;
  }
}

/** A row holds a value that a model cannot hold; the framework has not written it. */
export class UnreadableValueError extends FrameworkError {
  /** The table and the column, such as `wallets.due_date`. */
  readonly path: string;
  /** The id of the row. */
  readonly rowId: string;

  /** @param options its cause says why */
  constructor(path: string, rowId: string, options: { readonly cause: unknown }) {
    const { cause } = options;
    const reason = cause instanceof Error ? cause.message : String(cause);
    super(
      'unreadable-value',
      `${path} of the row ${rowId} cannot be read: ${reason}. Correct the row, or declare another type of column.`,
      options,
    );
    this.path = path;
    this.rowId = rowId;
  }
}

/** An event in the log does not fit what its class declares now: the class has changed since the row was written. */
export class UnreadableEventError extends FrameworkError {
  /** The `event_type` in the log. */
  readonly eventType: string;
  /** The event's id in the log, if the reader provided it. */
  readonly eventId: string | undefined;
  /** The id of the model to which it happened. */
  readonly modelId: string;
  /** Where in the payload, such as `amount` or `lines.0.price`; empty for the payload as a whole. */
  readonly path: string;
  /** What does not fit there. */
  readonly reason: string;

  constructor(
    event: { readonly type: string; readonly id?: string | undefined; readonly modelId: string },
    misfit: { readonly path: string; readonly reason: string },
    options?: { readonly cause?: unknown },
  ) {
    const { type, id, modelId } = event;
    const { path, reason } = misfit;
    const which = id === undefined ? `An event ${type}` : `Event ${id} (${type})`;
    const remedy =
      path === ''
        ? 'convert older payloads with a static upcast'
        : 'make the field optional in the schema, or add it to older payloads with a static upcast';
    super(
      'unreadable-event',
      `${which} of model ${modelId} cannot be read: its ${path === '' ? 'payload' : `payload.${path}`} does not fit the schema of its class ` +
        `(${reason}). Events in the log never change: ${remedy}.`,
      options,
    );
    this.eventType = type;
    this.eventId = id;
    this.modelId = modelId;
    this.path = path;
    this.reason = reason;
  }
}

/** A message from a broker is no event that a relay has published, or was changed on its way. */
export class UnreadableMessageError extends FrameworkError {
  /** The CloudEvents attribute that is missing or wrong; `data` for the body. */
  readonly attribute: string;
  /** What is wrong with it, with its value. */
  readonly reason: string;

  constructor(attribute: string, reason: string, options?: { readonly cause?: unknown }) {
    super(
      'unreadable-message',
      `The message is no event of a relay: its ${attribute === 'data' ? 'body' : `attribute ${attribute}`} ${reason}. ` +
        'Pass the headers and the body as the client of the broker has received them, and only messages of a relay.',
      options,
    );
    this.attribute = attribute;
    this.reason = reason;
  }
}

/** A message has an event of a type that this consumer does not decode. */
export class UnknownEventTypeError extends FrameworkError {
  /** The attribute `type` of the message. */
  readonly type: string;

  /** @param known the types that the consumer decodes */
  constructor(type: string, known: readonly string[]) {
    super(
      'unknown-event-type',
      `No class is known for events of the type '${type.slice(0, 255)}', only for ${known.join(', ')}: ` +
        'add the class, or ignore what is unknown with decodeIfKnown',
    );
    this.type = type;
  }
}
