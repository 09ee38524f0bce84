import { type Broker, type BrokerMessage, RefusedByBroker, publishByKey } from '../src/index.js';

/** A broker whose answers a test decides; `published` contains the messages that it has confirmed. */
export class ScriptedBroker implements Broker {
  readonly published: BrokerMessage[] = [];
  /** The number of messages in each call. */
  readonly sizes: number[] = [];
  readonly limits: NonNullable<Broker['limits']>;
  isDown = false;
  isSilent = false;
  refuses: (message: BrokerMessage) => boolean = () => false;
  /** Called with each message that is confirmed. */
  onPublished: (message: BrokerMessage) => void = () => undefined;

  constructor(limits: NonNullable<Broker['limits']>) {
    this.limits = limits;
  }

  publish(messages: readonly BrokerMessage[], signal: AbortSignal) {
    this.sizes.push(messages.length);
    if (this.isSilent) return new Promise<never>(() => undefined);
    return publishByKey(messages, signal, async (message) => {
      if (this.isDown) throw new Error('connection refused');
      if (this.refuses(message)) throw new RefusedByBroker('too large');
      this.published.push(message);
      this.onPublished(message);
    });
  }

  async ping(): Promise<void> {}

  async close(): Promise<void> {}

  /** The versions of a model as they first arrived. */
  firstVersions(modelId: string): readonly number[] {
    const versions = this.published
      .filter(({ attributes }) => attributes['subject'] === modelId)
      .map(({ attributes }) => Number(attributes['modelversion']));
    return [...new Set(versions)];
  }
}
