import type { DatabaseRegistry, FrameworkConfig, ShardIdentifier } from '@framework/core';
import type { DeliverableEvent } from '@framework/core/adapter';

import type { PartialPage } from './answers.js';

/** A table that an application shows to its operators, such as its transfers. */
export interface OperatorView {
  /** Lower case with hyphens; part of its address. */
  readonly name: string;
  /** One sentence that says what it shows. */
  readonly summary: string;
  /**
   * Reads one page from indexes. Items are JSON values and dates; one with an `id` can be explained by `why`.
   *
   * @param page.limit 1 to 1,000
   */
  read(page: ViewPage): Promise<PartialPage<Readonly<Record<string, unknown>>>>;
}

/** Which page of a view or of a check is wanted. */
export interface ViewPage {
  readonly limit: number;
  /** The `next` of the previous page. Default: the first page. */
  readonly after?: string | undefined;
}

/** Something that must hold in an application's data, whatever is in progress. It is checked in steps, so that each one is short. */
export interface OperatorInvariant {
  /** Lower case with hyphens; part of its address. */
  readonly name: string;
  /** One sentence that says what must hold. */
  readonly summary: string;
  /**
   * Checks one part of the data. Nothing is proved about databases that failed.
   *
   * @param page.limit how many models of each database are examined, 1 to 1,000
   */
  check(page: ViewPage): Promise<InvariantStep>;
}

/** One step of a check: `items` are the violations, `next` is where the check continues. */
export interface InvariantStep extends PartialPage<InvariantViolation> {
  /** How many models this step has examined. */
  readonly examinedCount: number;
}

/** Something that does not hold. */
export interface InvariantViolation {
  /** A sentence that says what is found, and what was expected. */
  readonly text: string;
  /** What it is about; `why` and the history of a model take it. */
  readonly id: string;
  /** The shards of the database, as `group/member`. */
  readonly shards: readonly string[];
}

/** What stands in the way of something, in words and as data. */
export interface Explanation {
  /** Plain sentences, the most important one first. */
  readonly sentences: readonly string[];
  readonly data: Readonly<Record<string, unknown>>;
  /** What lies on the shards concerned, to be shown side by side, such as the two ends of a transfer. */
  readonly sides?: readonly ExplanationSide[];
}

/** What one shard knows of something. */
export interface ExplanationSide {
  /** Such as `source`. */
  readonly title: string;
  /** As `group/member`. */
  readonly shard: string;
  /** JSON values and dates; `undefined` when the shard has nothing. */
  readonly fields: Readonly<Record<string, unknown>> | undefined;
  /** The code of the error when the shard did not answer. */
  readonly failure?: string | undefined;
}

/** Port: what an application adds to its operator. */
export interface OperatorExtension {
  readonly views?: readonly OperatorView[];
  readonly invariants?: readonly OperatorInvariant[];
  /** Documents of the application by name: `openapi`, `asyncapi`. */
  readonly documents?: Readonly<Record<string, () => object | Promise<object>>>;
  /** Explains what stands in the way of one of the application's own ids; `undefined` for any other id. */
  why?(id: string): Promise<Explanation | undefined>;
}

/** A consumer that publishes to a broker, such as a `Relay` of `@framework/relay`. */
export interface OperatedRelay {
  readonly name: string;
  /** Its former names. */
  readonly aliases?: readonly string[];
  /** Whether its filter wants an event, which has its payload. Default: it wants every event. */
  readonly wants?: ((event: DeliverableEvent, shards: readonly ShardIdentifier[]) => boolean) | undefined;
  /** Publishes events again that it has passed; absent where its broker cannot be reached. */
  publishAgain?(
    events: readonly DeliverableEvent[],
    options: { readonly shards: readonly ShardIdentifier[]; readonly marker: string },
  ): Promise<readonly { readonly kind: string; readonly reason?: string }[]>;
}

/** An application as its operators see it. */
export interface OperatedApplication {
  readonly databases: Pick<DatabaseRegistry, 'deliveries' | 'close'>;
  readonly extensions: readonly OperatorExtension[];
}

/**
 * What the module that `framework.operator.module` names exports by default, so that the command line knows the application's tables.
 * It must not start a delivery, and need not wait for databases.
 */
export type OperatorModule = (config: FrameworkConfig) => OperatedApplication | Promise<OperatedApplication>;
