/** One line of the table: what was measured, and what it must be. */
export interface Figure {
  readonly title: string;
  readonly value: number;
  /** Such as `×`, `ms`, `s`, `%`. */
  readonly unit: string;
  /** The value must not be less. */
  readonly atLeast?: number;
  /** The value must not be more. */
  readonly atMost?: number;
  /** What the value was computed from, such as the median of each contender. */
  readonly measured: Readonly<Record<string, number>>;
}

/** Whether a figure is within its bounds. */
export function isReached({ value, atLeast = -Infinity, atMost = Infinity }: Figure): boolean {
  return value >= atLeast && value <= atMost;
}
