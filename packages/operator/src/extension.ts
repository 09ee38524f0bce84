import type { PartialAnswer } from './answers.js';

/** A table that an application shows to its operators, such as transfers that are stuck. */
export interface OperatorView {
  /** Lower case with hyphens; part of its address. */
  readonly name: string;
  /** One sentence that says what it shows. */
  readonly summary: string;
  /**
   * Reads one page from indexes. Items are JSON values and dates.
   *
   * @param page.limit 1 to 1,000
   */
  read(page: {
    readonly limit: number;
    readonly after?: string | undefined;
  }): Promise<PartialAnswer<Readonly<Record<string, unknown>>> & { readonly next?: string | undefined }>;
}

/** Something that must hold in an application's data, whatever is in progress. */
export interface OperatorInvariant {
  readonly name: string;
  readonly summary: string;
  /** Checks it. Each item is a violation, as a sentence; nothing is proved about databases that failed. */
  check(): Promise<PartialAnswer<string>>;
}

/** What stands in the way of something, in words and as data. */
export interface Explanation {
  /** Plain sentences, the most important one first. */
  readonly sentences: readonly string[];
  readonly data: Readonly<Record<string, unknown>>;
}

/** Port: what an application adds to its operator. */
export interface OperatorExtension {
  readonly views?: readonly OperatorView[];
  readonly invariants?: readonly OperatorInvariant[];
  /** Explains what stands in the way of one of the application's own ids; `undefined` for any other id. */
  why?(id: string): Promise<Explanation | undefined>;
}
