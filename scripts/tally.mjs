const line = /^(\d+) passed, (\d+) failed(?:, (\d+) skipped)?$/;

/** Counts what passed, failed and was skipped, and ends a run with the one line that tells it. */
export class Tally {
  passed = 0;
  failed = 0;
  skipped = 0;
  notes = [];

  /** Reads the tally of a run from what it printed: its last line, and as notes the lines that name what failed. */
  static fromOutput(output) {
    const lines = output.trimEnd().split('\n');
    const match = line.exec(lines.at(-1) ?? '');
    if (!match) return undefined;
    const tally = new Tally();
    const notes = [...new Set(lines.filter((text) => /^[✗~] /.test(text)))];
    tally.add({ passed: Number(match[1]), failed: Number(match[2]), skipped: Number(match[3] ?? 0), notes });
    return tally;
  }

  add({ passed = 0, failed = 0, skipped = 0, notes = [] }) {
    this.passed += passed;
    this.failed += failed;
    this.skipped += skipped;
    this.notes.push(...notes);
  }

  /** Prints the notes and the line, and lets the process fail when anything failed or nothing passed. */
  close() {
    if (this.passed === 0 && this.failed === 0) this.failed = 1;
    if (this.failed > 0) process.exitCode = 1;
    for (const note of this.notes) console.log(note);
    const skipped = this.skipped > 0 ? `, ${this.skipped} skipped` : '';
    console.log(`${this.passed} passed, ${this.failed} failed${skipped}`);
  }
}
