import { JetStreamApiError, type JetStreamManager, type StreamInfo } from '@nats-io/jetstream';
import { PermissionViolationError, TimeoutError } from '@nats-io/transport-node';

import { NoAnswerError } from './connection-on-demand.js';

/** What JetStream answers when it has no stream of a name. */
const streamNotFound = 10_059;

/** How a stream treats messages, as far as is known: the settings of one that does not exist, or may not be asked, are not. */
export interface NatsTerms {
  /** Says whether it stores a message with a subject. */
  readonly isTaken: (subject: string) => boolean;
  /** When the stream was created, if it acknowledges a message that no consumer is to get, and drops it (`retention: interest`). */
  readonly interestSince: string | undefined;
}

/** A stream, as far as its settings decide whether a message that it acknowledges is stored. */
export class NatsStream {
  readonly #manager: JetStreamManager;
  readonly #servers: readonly string[];
  readonly #name: string;
  readonly #createWith: readonly string[] | undefined;
  readonly #warn: (text: string) => void;
  #checked: Promise<StreamInfo | undefined> | undefined;
  /** What it is like after the look that is under way. */
  #next: Promise<StreamInfo | undefined> | undefined;

  /**
   * @param options.servers whom its errors name
   * @param options.createWith the subjects with which it is created whenever it does not exist. Default: it is not created
   * @param options.warn called with what makes a confirmation worth less
   */
  constructor(
    manager: JetStreamManager,
    {
      servers,
      name,
      createWith,
      warn,
    }: {
      readonly servers: readonly string[];
      readonly name: string;
      readonly createWith: readonly string[] | undefined;
      readonly warn: (text: string) => void;
    },
  ) {
    this.#manager = manager;
    this.#servers = servers;
    this.#name = name;
    this.#createWith = createWith;
    this.#warn = warn;
  }

  /**
   * Looks at its settings now, if the user may ask for them.
   *
   * @throws Error when it does not exist, or would confirm nothing
   */
  async check(): Promise<void> {
    this.forget();
    const info = await this.#info().catch((error: unknown) => {
      if (!isDenied(error)) throw error;
    });
    if (info !== undefined) assertConfirms(info);
  }

  /** Lets the next call of {@link terms} look at its settings again. */
  forget(): void {
    this.#checked = undefined;
  }

  /**
   * Finds out what it stores, if its own subjects do not tell.
   *
   * @throws Error when it would confirm nothing
   */
  async terms(): Promise<NatsTerms> {
    const interestSince = interestIn(await this.#known());
    if (interestSince === undefined) return { isTaken: () => true, interestSince };
    const filters = await this.#filters().catch((error: unknown) => {
      if (!isDenied(error)) throw error;
      return ['>'];
    });
    return { isTaken: (subject) => filters.some((filter) => isMatch(filter, subject)), interestSince };
  }

  /**
   * Looks at its settings again once messages are acknowledged: it may have been deleted and created again, or edited, since the terms were
   * read. Its sequence numbers do not show that when others publish to it, too.
   *
   * @returns false when it may have dropped what it has acknowledged
   * @throws Error when it would confirm nothing
   */
  async keeps({ interestSince }: NatsTerms): Promise<boolean> {
    // A look that has begun may have seen it before the acknowledgements. The next one is enough for everybody who waits for it.
    const since = interestIn(await (this.#next ??= this.#lookAgain()));
    return since === undefined || since === interestSince;
  }

  /** The subjects that its consumers get. */
  #filters(): Promise<readonly string[]> {
    return this.#ask(async ({ consumers }) => {
      const filters: string[] = [];
      for await (const { config } of consumers.list(this.#name))
        filters.push(...(config.filter_subjects ?? [config.filter_subject || '>']));
      return filters;
    });
  }

  /**
   * Whether it has, or has had, a message that it calls a repeat. Within its `duplicate_window`, it recognises also what was removed from it.
   *
   * @returns false when somebody has removed the message; true when its limits or a consumer may have
   */
  async has(sequence: number): Promise<boolean> {
    try {
      const { config, state } = await this.#info();
      if (config.retention !== 'limits' || config.max_msgs_per_subject > 0) return true;
      const isFull = isNear(state.messages, config.max_msgs) || isNear(state.bytes, config.max_bytes);
      if (sequence < state.first_seq) return isFull;
      if (state.num_deleted === 0) return true;
      return (await this.#ask(({ streams }) => streams.getMessage(this.#name, { seq: sequence }))) !== null;
    } catch (error) {
      if (isUnknown(error)) return true;
      throw error;
    }
  }

  async #lookAgain(): Promise<StreamInfo | undefined> {
    await this.#checked?.catch(() => undefined);
    this.#next = undefined;
    this.forget();
    return this.#known();
  }

  async #known(): Promise<StreamInfo | undefined> {
    const checking = (this.#checked ??= this.#settings());
    return checking.catch((error: unknown) => {
      if (this.#checked === checking) this.forget();
      throw error;
    });
  }

  async #settings(): Promise<StreamInfo | undefined> {
    try {
      const info = await this.#infoOrNew();
      assertConfirms(info);
      if (info.config.storage === 'memory')
        this.#warn(
          `The stream ${this.#name} of NATS keeps its messages in memory: a restart of its server loses confirmed ones`,
        );
      return info;
    } catch (error) {
      if (isDenied(error))
        this.#warn(
          `The user may not ask NATS for the settings of the stream ${this.#name} ($JS.API.STREAM.INFO): a confirmation may be of a stream that keeps nothing`,
        );
      if (isUnknown(error)) return undefined;
      throw error;
    }
  }

  #infoOrNew(): Promise<StreamInfo> {
    return this.#info().catch((error: unknown) => {
      if (this.#createWith === undefined || !isAnswer(error, streamNotFound)) throw error;
      const wanted = { name: this.#name, subjects: [...this.#createWith] };
      return this.#ask(({ streams }) => streams.add(wanted));
    });
  }

  #info(): Promise<StreamInfo> {
    return this.#ask(({ streams }) => streams.info(this.#name));
  }

  /** @throws NoAnswerError in place of the client's error, which says only "timeout" */
  async #ask<T>(question: (manager: JetStreamManager) => Promise<T>): Promise<T> {
    try {
      return await question(this.#manager);
    } catch (error) {
      if (!(error instanceof TimeoutError)) throw error;
      const servers = this.#servers.join(', ');
      throw new NoAnswerError(
        `NATS at ${servers} does not answer in time what it is asked about the stream ${this.#name}`,
        { cause: error },
      );
    }
  }
}

/** @throws Error when it would confirm nothing */
function assertConfirms({ config }: StreamInfo): void {
  if (config.no_ack === true)
    throw new Error(
      `The stream ${config.name} of NATS has no_ack, so that it confirms no message: set it to false`,
    );
}

/** When a stream was created that keeps messages only for its consumers. */
function interestIn(info: StreamInfo | undefined): string | undefined {
  return info?.config.retention === 'interest' ? info.created : undefined;
}

/** Whether the settings of a stream cannot be known: it does not exist, or the user may not ask. */
function isUnknown(error: unknown): boolean {
  return isAnswer(error, streamNotFound) || isDenied(error);
}

function isDenied(error: unknown): boolean {
  return error instanceof Error && error.cause instanceof PermissionViolationError;
}

function isAnswer(error: unknown, code: number): boolean {
  return error instanceof JetStreamApiError && error.code === code;
}

/** Whether a stream has so much of what it may have that it may have removed its oldest messages; -1 is no limit. */
function isNear(count: number, limit: number): boolean {
  return limit > 0 && count * 2 >= limit;
}

/** Whether a subject is one of those that a filter with the wildcards `*` and `>` names. */
function isMatch(filter: string, subject: string): boolean {
  const parts = subject.split('.');
  const wanted = filter.split('.');
  const isOpen = wanted.at(-1) === '>';
  if (isOpen) wanted.pop();
  return (
    (isOpen ? parts.length > wanted.length : parts.length === wanted.length) &&
    wanted.every((part, index) => part === '*' || part === parts[index])
  );
}
