import type { HintChannel } from '@framework/core';
import type { PgTransactionManager } from '../connection/pg-transaction-manager.js';
import { HintListener, type HintSettings } from './hint-listener.js';

const channelName = 'eventlog';

/** How processes tell each other of commits to one PostgreSQL database: `notify` and `listen`. */
export class PgHintChannel implements HintChannel {
  readonly #manager: PgTransactionManager;
  readonly #settings: HintSettings;

  /** @param settings where to listen, on connections of its own */
  constructor(manager: PgTransactionManager, settings: HintSettings) {
    this.#manager = manager;
    this.#settings = settings;
  }

  async notify(): Promise<void> {
    await this.#manager.query({ text: `notify ${channelName}` });
  }

  async listen(onHint: () => void): Promise<() => Promise<void>> {
    const listener = new HintListener(this.#settings, channelName, onHint);
    return () => listener.close();
  }
}
