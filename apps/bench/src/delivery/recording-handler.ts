import { setTimeout as pause } from 'node:timers/promises';
import { type EventEnvelope, type EventHandler, FrameworkEventHandler } from '@framework/events';
import { WalletMoneyDepositedEvent } from 'wallet-service';

const timeoutMs = 120_000;

/** A handler of deposits that only records what it receives, and when it has received enough. */
export interface RecordingHandler extends EventHandler<WalletMoneyDepositedEvent> {
  /** The last version of each wallet. */
  readonly versions: ReadonlyMap<string, number>;
  /** How many events it has received, without repeats. */
  readonly count: number;
  /**
   * Resolves when it has received the given number of events.
   *
   * @throws Error when it has not received them within two minutes
   */
  reached(count: number): Promise<void>;
}

/**
 * Creates a handler that starts at the beginning of the log.
 *
 * @param onEvent called with each event; an error that it throws fails the attempt
 */
export function recordingHandler(
  name: string,
  onEvent: (envelope: EventEnvelope<WalletMoneyDepositedEvent>) => void | Promise<void> | undefined = () =>
    undefined,
): RecordingHandler {
  @FrameworkEventHandler({ name, startFrom: 'beginning' })
  class Recording implements RecordingHandler {
    readonly event = WalletMoneyDepositedEvent;
    readonly versions = new Map<string, number>();
    count = 0;
    #target = Infinity;
    #onReached: () => void = () => undefined;

    async handle(envelope: EventEnvelope<WalletMoneyDepositedEvent>): Promise<void> {
      const seen = onEvent(envelope);
      if (seen !== undefined) await seen;
      const { modelId, modelVersion } = envelope;
      const last = this.versions.get(modelId);
      // Repeats are not counted; first deliveries come in order and without a gap.
      if (last !== undefined && modelVersion <= last) return;
      if (last !== undefined && modelVersion !== last + 1) {
        throw new Error(`${name} was given version ${modelVersion} of ${modelId} after ${last}`);
      }
      this.versions.set(modelId, modelVersion);
      this.count++;
      if (this.count >= this.#target) this.#onReached();
    }

    async reached(count: number): Promise<void> {
      if (this.count >= count) return;
      this.#target = count;
      const reached = new Promise<void>((resolve) => (this.#onReached = resolve));
      const given = new AbortController();
      const tooLate = pause(timeoutMs, undefined, { signal: given.signal }).then(() => {
        throw new Error(`${name} was given ${this.count} events of ${count} within ${timeoutMs} ms`);
      });
      await Promise.race([reached, tooLate]);
      given.abort();
      await tooLate.catch(() => undefined);
    }
  }
  return new Recording();
}
