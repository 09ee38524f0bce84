/** One row of a database in memory: belongs to the database alone, so nobody changes it. */
export class MemoryRow {
  readonly id: string;
  readonly version: number;
  readonly state: string;
  /** What the repository makes the model of. */
  readonly fields: object;
  /** Whether the fields are all that the row has; else an update keeps the stored ones that it does not name. */
  readonly isWhole: boolean;

  constructor(row: {
    readonly id: string;
    readonly version: number;
    readonly state: string;
    readonly fields: object;
    readonly isWhole: boolean;
  }) {
    this.id = row.id;
    this.version = row.version;
    this.state = row.state;
    this.fields = row.fields;
    this.isWhole = row.isWhole;
  }

  /** What stands in the database once this row updates another one. */
  over(stored: MemoryRow): MemoryRow {
    if (this.isWhole) return this;
    const { id, version, state, isWhole } = this;
    return new MemoryRow({ id, version, state, isWhole, fields: { ...stored.fields, ...this.fields } });
  }
}
