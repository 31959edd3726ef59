// Java's JDBC: java -cp sqlite-jdbc.jar Jdbc.java MODULE FILE SCENARIO...
import java.io.PrintStream;
import java.nio.file.Files;
import java.nio.file.Path;
import java.sql.*;
import java.util.Properties;
import java.util.StringJoiner;

public class Jdbc {
  static void show(ResultSet rows, PrintStream out) throws SQLException {
    while (rows.next()) {
      StringJoiner line = new StringJoiner("|");
      for (int i = 1; i <= rows.getMetaData().getColumnCount(); i++) {
        String value = rows.getString(i);
        line.add(value == null ? "" : value);
      }
      out.println(line);
    }
  }

  public static void main(String[] args) throws Exception {
    PrintStream out = new PrintStream(System.out, true, "UTF-8");
    Properties properties = new Properties();
    properties.setProperty("enable_load_extension", "true");
    try (Connection db = DriverManager.getConnection("jdbc:sqlite:" + args[1], properties)) {
      try (PreparedStatement load = db.prepareStatement("SELECT load_extension(?)")) {
        load.setString(1, args[0]);
        load.execute();
      }
      out.println(db.getMetaData().getDatabaseProductVersion());
      for (int i = 2; i < args.length; i++) {
        for (String sql : Files.readString(Path.of(args[i])).split("\n\n")) {
          if (sql.startsWith("--")) continue;
          try (PreparedStatement statement = db.prepareStatement(sql)) {
            if (sql.contains("?, ?")) {
              statement.setString(1, "bound");
              statement.setString(2, "né€😀");
              statement.setBytes(3, new byte[] {0, (byte) 0xff});
              statement.setNull(4, Types.VARCHAR);
              statement.setLong(5, 1760000000000L);
            }
            if (statement.execute()) show(statement.getResultSet(), out);
          } catch (SQLException error) {
            // "[SQLITE_CONSTRAINT_TRIGGER] A ... constraint failed (message)"
            out.println("error: " + error.getMessage().replaceFirst("(?s)^\\[\\w+\\].*? \\((.*)\\)$", "$1"));
          }
        }
      }
    }
  }
}
