/** One line of the table: what was measured, and its bounds. */
export interface Figure {
  readonly title: string;
  readonly value: number;
  /** The unit of the value, such as `×`, `ms`, `s`, `%`. */
  readonly unit: string;
  /** The lower bound. */
  readonly atLeast?: number;
  /** The upper bound. */
  readonly atMost?: number;
  /** What the value was computed from, such as the median of each contender. */
  readonly measured: Readonly<Record<string, number>>;
}

/** Whether a figure is within its bounds. */
export function isReached({ value, atLeast = -Infinity, atMost = Infinity }: Figure): boolean {
  return value >= atLeast && value <= atMost;
}
