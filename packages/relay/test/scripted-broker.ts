import {
  type Broker,
  type BrokerMessage,
  NotTakenByBroker,
  type PublishOutcome,
  RefusedByBroker,
  publishByKey,
} from '../src/index.js';

/** A broker whose answers a test decides; `published` contains the messages that it has confirmed. */
export class ScriptedBroker implements Broker {
  readonly published: BrokerMessage[] = [];
  /** The number of messages in each call. */
  readonly sizes: number[] = [];
  readonly limits: NonNullable<Broker['limits']>;
  isDown = false;
  isSilent = false;
  /** The calls that it does not answer at all. */
  failsCall: (messages: readonly BrokerMessage[]) => boolean = () => false;
  /** The messages that get no answer, while others do. */
  isLost: (message: BrokerMessage) => boolean = () => false;
  /** The messages for which it is silent, while others get their answers. */
  ignores: (message: BrokerMessage) => boolean = () => false;
  refuses: (message: BrokerMessage) => boolean = () => false;
  /** The messages that it does not take now, with the time for which their target asks, if it does. */
  takesLater: (message: BrokerMessage) => { readonly afterMs?: number } | undefined = () => undefined;
  targetOf: (message: BrokerMessage) => string = () => '';
  /** The ids of all messages that were sent, in order. */
  readonly sent: string[] = [];
  /** What it answers instead, without publishing anything. */
  answers: (() => readonly PublishOutcome[]) | undefined;
  /** Called with each message that is confirmed. */
  onPublished: (message: BrokerMessage) => void = () => undefined;

  constructor(limits: NonNullable<Broker['limits']>) {
    this.limits = limits;
  }

  publish(messages: readonly BrokerMessage[], signal: AbortSignal) {
    this.sizes.push(messages.length);
    if (this.isSilent) return new Promise<never>(() => undefined);
    if (this.failsCall(messages)) return Promise.reject(new Error('connection reset'));
    if (this.answers !== undefined) return Promise.resolve(this.answers());
    const publishOne = async (message: BrokerMessage): Promise<void> => {
      this.sent.push(message.id);
      if (this.isDown || this.isLost(message)) throw new Error('connection refused');
      if (this.ignores(message)) await new Promise<never>(() => undefined);
      if (this.refuses(message)) throw new RefusedByBroker('too large');
      const later = this.takesLater(message);
      if (later !== undefined) throw new NotTakenByBroker('not now', later.afterMs);
      this.published.push(message);
      this.onPublished(message);
    };
    return publishByKey(messages, signal, publishOne, { concurrency: 8, targetOf: this.targetOf });
  }

  async ping(): Promise<void> {
    if (this.isDown || this.isSilent) throw new Error('connection refused');
  }

  async close(): Promise<void> {}

  /** The versions of a model as they first arrived. */
  firstVersions(modelId: string): readonly number[] {
    const versions = this.published
      .filter(({ attributes }) => attributes['subject'] === modelId)
      .map(({ attributes }) => Number(attributes['modelversion']));
    return [...new Set(versions)];
  }
}
