/** One row of a database in memory: belongs to the database alone, so nobody changes it. */
export class MemoryRow {
  readonly id: string;
  readonly version: number;
  readonly state: string;
  /** What the repository makes the model of. */
  readonly fields: object;

  constructor(row: {
    readonly id: string;
    readonly version: number;
    readonly state: string;
    readonly fields: object;
  }) {
    this.id = row.id;
    this.version = row.version;
    this.state = row.state;
    this.fields = row.fields;
  }
}
