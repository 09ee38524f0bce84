/** One page of a longer list, read by key and not by offset. */
export interface Page<T> {
  readonly items: readonly T[];
  /** Pass it as `after` to read on; `undefined` on the last page. */
  readonly next: string | undefined;
}
