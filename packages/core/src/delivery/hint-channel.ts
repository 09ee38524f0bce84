/** Port: how processes tell each other that something was committed to one database. */
export interface HintChannel {
  /** Tells other processes, as a hint and outside of any transaction of the business, that something was committed. */
  notify(): Promise<void>;
  /**
   * Calls back at every hint of another process, on a connection of its own that is made again when it breaks.
   *
   * @returns what ends it
   */
  listen(onHint: () => void): Promise<() => Promise<void>>;
}
